"""What is the command line of a worker that a pool starts? One place for all backends."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from swell.machine.worker_folder import GIVEN_TOKEN
from swell.pools.backend import WorkerOrder

TOKEN_VARIABLE = "SWELL_WORKER_TOKEN"  # noqa: S105  where no file can be handed over; removed before the worker starts
#: Puts the token into the private folder $folder, where other users may make folders, files and links of any name
#: before us. What is looked at is the folder that was entered, so it cannot be exchanged in between. One of ours is
#: taken: a worker is started again where its predecessor was. The variable is gone before the worker runs, so no task
#: finds it in its environment.
KEEP_TOKEN = (
    'umask 077; mkdir -p "$(dirname "$folder")"; mkdir "$folder" 2>/dev/null; '
    '( cd -P "$folder" && [ -O . ] && [ ! -L "$folder" ] && '
    'case "$(ls -ld .)" in drwx--[-S]---[.\\ ]*) ;; *) false ;; esac || '
    '{ echo "swell: the folder $folder of the worker cannot be made, or is not a private folder of this user: somebody '
    'else may have prepared it; remove it, or choose another --work-dir-prefix" >&2; exit 1; }; '
    f'rm -f {GIVEN_TOKEN} && set -C && printf %s "${TOKEN_VARIABLE}" >{GIVEN_TOKEN} ) || exit 1; '
    f"unset {TOKEN_VARIABLE}"
)
#: $1 is the worker's folder.
FROM_ENVIRONMENT = f'folder=$1; shift; {KEEP_TOKEN}; exec "$@"'
#: $2 is its name. For a backend that may start one worker several times: the worker of before may still live on a
#: machine that is out of reach, so this is another, called after the second in which it starts.
FROM_ENVIRONMENT_AGAIN = (
    f"run=r$(date +%s); folder=$1-$run name=$2-$run; shift 2; {KEEP_TOKEN}; "
    f'exec "$@" --name "$name" --folder "$folder" --token-file "$folder/{GIVEN_TOKEN}"'
)


def new_worker_id(pool: str) -> str:
    return f"{pool}-{secrets.token_hex(4)}"


def worker_folder(order: WorkerOrder) -> Path:
    """On the worker's machine; its own, so that two on one machine do not meet."""
    return Path(order.folder_prefix) / f"swell-worker-{order.id}"


def worker_words(order: WorkerOrder, *, token_file: Path, folder: Path | None = None) -> tuple[str, ...]:
    """`swell worker …` as argv. `token_file`: on the worker's machine. `folder`: None: `worker_folder`.

    What it offers is not said here: a worker reads the limits of the job or pod that it runs in (docs/workers.md).
    """
    place = folder or worker_folder(order)
    told = replace(order.worker, name=order.id, token_file=token_file, folder=place, deletes_folder=True)
    return (order.executable, "worker", *told.words())


def words_with_token_variable(order: WorkerOrder, *, comes_again: bool = False) -> tuple[str, ...]:
    """The same where the token comes in `SWELL_WORKER_TOKEN`, as a container's secret does.

    `comes_again`: the backend may start it several times, and does not say how often it has.
    """
    place = worker_folder(order)
    words = worker_words(order, token_file=place / GIVEN_TOKEN, folder=place)
    if comes_again:
        return ("sh", "-c", FROM_ENVIRONMENT_AGAIN, "swell", str(place), order.id, *words)
    return ("sh", "-c", FROM_ENVIRONMENT, "swell", str(place), *words)
