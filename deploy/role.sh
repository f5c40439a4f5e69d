#!/usr/bin/env bash
# What the image starts: a role of a run. It ends with the role's own exit status, but where a signal stopped the role
# with 143: the role has saved the run then and ends with 0, which a cluster would take for the end of the whole run.
set -uo pipefail

role=
stop() {
    trap '' TERM INT
    if [[ -n $role ]]; then
        kill -TERM "$role" 2>/dev/null
        wait "$role"
        local code=$?
        ((code == 0)) || exit "$code"
    fi
    exit 143
}
trap stop TERM INT

python -m breakout_env.entry.breakout_dqn_dist "$@" &
role=$!
wait "$role"
