"""What does systemd need to know of a box server?"""

from __future__ import annotations

from pathlib import Path

NAME = "swell.service"


def render_unit(swell: Path, *, state: Path, socket: Path) -> str:
    """KillMode=process and a kept runtime folder: restarts and upgrades leave running tasks, and clients, alone."""
    return f"""\
[Unit]
Description=Swell: runs training and HPC jobs for everybody on this machine
Documentation=file:///usr/share/doc/swell/box.md
After=network.target nss-user-lookup.target

[Service]
Type=exec
ExecStart={swell} service run --state {state} --socket {socket}
Restart=on-failure
RestartSec=2
# Tasks live on while the server is restarted or upgraded; the next one takes them up.
KillMode=process
# Each task has a control group of its own below this unit's.
Delegate=yes
# A group that has groups with limits below it holds no processes itself: the server's are in one beside (systemd 254).
DelegateSubgroup=swell-itself
RuntimeDirectory={socket.parent.name}
RuntimeDirectoryMode=0755
# Who finds the socket of a server that is down waits for it, and does not start one of their own.
RuntimeDirectoryPreserve=yes
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
"""
