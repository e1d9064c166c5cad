"""What does the Helm chart say in plain words? Writes deploy/kubernetes/ for those who use kubectl alone.

    .venv/bin/python tools/render_manifests.py [--helm PROGRAM]

tests/deploy holds the files equal to the chart.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "swell"
TARGET = ROOT / "deploy" / "kubernetes"
NAMESPACE = "swell"
#: file → values beside the chart's own
VARIANTS: dict[str, tuple[Path, ...]] = {
    "swell.yaml": (),
    "swell-openshift.yaml": (CHART / "values-openshift.yaml",),
}
HEAD = f"""\
# Made from deploy/helm/swell by tools/render_manifests.py; change the chart, not this.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""
#: What is Helm's alone: without it nothing would be managed by it.
OF_HELM = re.compile(r"^ *(?:helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n", re.MULTILINE)
KEPT = re.compile(r"^ *annotations:\n *helm\.sh/resource-policy: keep\n", re.MULTILINE)


def render(helm: str, values: tuple[Path, ...]) -> str:
    words = [helm, "template", "swell", str(CHART), "--namespace", NAMESPACE]
    for file in values:
        words += ["--values", str(file)]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return HEAD + KEPT.sub("", OF_HELM.sub("", made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--helm", default="helm")
    options = parser.parse_args()
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, values in VARIANTS.items():
        (TARGET / name).write_text(render(options.helm, values))


if __name__ == "__main__":
    main()
