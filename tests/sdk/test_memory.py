"""What is said of GPU memory. There is no GPU here: a module of torch's name stands in for it."""

from __future__ import annotations

import sys
import types

import pytest

from swell_sdk.memory import MIB, peak_mib


def torch_with(*peaks_mib: int, is_initialized: bool = True) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        cuda=types.SimpleNamespace(
            is_initialized=lambda: is_initialized,
            device_count=lambda: len(peaks_mib),
            max_memory_reserved=lambda device: peaks_mib[device] * MIB,
        )
    )


def test_the_peaks_of_all_gpus_are_added_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", torch_with(100, 250))
    assert peak_mib() == 350


def test_a_gpu_that_the_script_has_not_touched_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", torch_with(100, is_initialized=False))
    assert peak_mib() is None


def test_without_torch_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert peak_mib() is None


def test_a_framework_that_fails_does_not_disturb_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    assert peak_mib() is None
