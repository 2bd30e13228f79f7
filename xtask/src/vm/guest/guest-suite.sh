#!/bin/bash
# Guest, as the user under test: one test executable, with the environment that tests are promised.
here=/opt/stockade
. "$here/manifest"
mapfile -t filter < "$here/filter"
cd "$HOME" || exit 125
# A delegated cgroup with processes in it can't hand out controllers. In a leaf of it, stockade needs no scope
# of its own for every execution; the session position is the one that shows those.
cgroup=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
if [ "$(id -u)" -ne 0 ] && mkdir "$cgroup/supervisor" 2> /dev/null; then
    echo $$ > "$cgroup/supervisor/cgroup.procs"
fi
export STOCKADE_BIN_DIR=$here/bin
# Emulated: a deadline of an ordinary machine is one tenth of what it takes here.
export STOCKADE_TEST_SLOW=10
# Output of passing tests too: that is where a skip says so.
exec timeout --kill-after=10 "$SUITE_SECONDS" "$here/tests/$1" --test-threads=6 --color=never --show-output "${filter[@]}" "${@:2}"
