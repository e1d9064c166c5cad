"""What does the keeper of a docker container do that one of podman's need not?

A podman container is a child of its own monitor and writes to the task's log itself. A docker container belongs to an
engine, which may be away for a while: it is restarted with every upgrade, and where it says `live-restore` its
containers go on meanwhile. So an engine that does not answer says nothing of the container, and is asked again; and
whoever waits after the client has gone reads on in the engine's log (see `dockerlog.py`).

`container` in the task's folder is made by docker's client when there is a container, and has its id. Without it
nothing was ever started, and the client's words say why.
"""

from __future__ import annotations

ASK_AGAIN_S = 1  # an engine that is restarted is away for seconds
CREATED = "container"

#: swell_ask: what state is the container in? Empty: there is none. Returns when the engine has answered.
AWAIT = """\
swell_ask() {
  until _swell_state=$(RUNTIME ps --all --filter "name=^$_swell_name\\$" --format '{{.State}}' 2> /dev/null); do
    sleep ASK_AGAIN_S
  done
}
swell_read_on() {
  _swell_since=$(READ_ON "$_swell_task/log" "$_swell_name" RUNTIME 2> /dev/null)
  [ -n "$_swell_since" ] || _swell_since=$(date -r "$_swell_task/log" +%s.%N)
  RUNTIME logs --follow --since "$_swell_since" "$_swell_name" &
}
swell_await() {
  _swell_code=
  while [ -z "$_swell_code" ]; do
    swell_ask
    case $_swell_state in '' | created) break ;; esac
    swell_read_on
    _swell_code=$(RUNTIME wait "$_swell_name" 2> /dev/null)
    case $_swell_code in *[!0-9]*) _swell_code= ;; esac
    [ -n "$_swell_code" ] || sleep ASK_AGAIN_S
  done
  wait
}
""".replace("ASK_AGAIN_S", str(ASK_AGAIN_S))

RUN = f"""\
_swell_state=
RUNTIME run --cidfile "$_swell_task/{CREATED}" "$@"
_swell_code=$?
if [ "$_swell_code" -ge 125 ]; then
  [ ! -s "$_swell_task/{CREATED}" ] || swell_ask
  case $_swell_state in
    '' | created)
      : > "$_swell_task/failed.container"
      _swell_code=125
      ;;
    *) swell_await ;;
  esac
fi
"""
