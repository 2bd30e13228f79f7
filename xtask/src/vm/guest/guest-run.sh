#!/bin/bash
# Guest, as root, started by stockade-guest.service: runs every suite as every user and reports on the
# second serial port, which carries nothing else. The lines that begin with the mark are read by xtask.
here=/opt/stockade
. "$here/manifest"
stty -F /dev/ttyS1 raw -echo
exec > /dev/ttyS1 2>&1 < /dev/null

mark() { printf '\n%s %s\n' "$MARK" "$*"; }

# How a command gets to be of that user. Three positions in the cgroup tree, and so three things a
# sandbox may do: root's login session; a delegated service of the user's own manager; a login session
# as ssh gives it, whose cgroup belongs to root.
as() {
    local user=$1
    shift
    case $user in
        root) su --login root --command "$*" ;;
        ordinary)
            runuser --user tester -- env XDG_RUNTIME_DIR=/run/user/1000 \
                systemd-run --user --quiet --pipe --wait --collect --property=Delegate=yes -- "$@"
            ;;
        session) su --login tester --command "$*" ;;
    esac
}

# Tests write into a pipe, as under cargo, not on a terminal. A process that a test left behind may hold the
# pipe open: it gets a moment, and no more.
piped() {
    local code relay
    "$@" > >(exec cat) 2>&1
    code=$?
    relay=$!
    timeout 10 tail --pid="$relay" --sleep-interval=0.05 --follow /dev/null || echo 'a process left behind still holds the output'
    kill "$relay" 2> /dev/null
    return "$code"
}

# What no kernel decides: how texts and arguments are read, and what is taken out of output. The machine that
# builds has shown it; here it would take minutes.
skipped() {
    [ "$2" = line ] && [ ! -s "$here/filter" ] || return
    printf -- '--skip %s:: ' arguments policy_command profile_errors profiles redaction
    # The clients' walls are root's too, and emulated package managers are slow.
    [ "$1" = root ] || printf -- '--skip clients::'
}

# The line, whole, is one user's on one kernel: the one that is least like the machine that builds. The others show
# what differs between kernels and users.
decided_by_kernels=(limits:: kills:: outside:: sockets:: policy_walls:: degraded:: neighbours:: allowlist:: memory::
    doctor:: exit_codes:: executor_link:: service::gone)
whole() { [ "$1" = ordinary ] && [[ $(uname -r) == 6.1.* ]]; }

# Every execution of a login session starts itself again in a scope of the user manager, which an emulated
# machine takes seconds for. What differs there is that start: one module of each suite shows it.
part() {
    if [ "$1" = session ]; then
        case $2 in
            line) echo exit_codes:: ;;
            units) echo serve:: ;;
            escape) echo read_outside:: ;;
            *) echo cgroup::live::kill ;;
        esac
    elif [ "$2" = line ] && [ ! -s "$here/filter" ] && ! whole "$1"; then
        echo "${decided_by_kernels[@]}"
    fi
}

# One group with a CPU limit for as long as the machine runs. The kernel rewrites its scheduler with the first of them and with
# the last, and an emulated processor was seen to run what was half rewritten.
quota=/sys/fs/cgroup/quota
echo +cpu > /sys/fs/cgroup/cgroup.subtree_control && mkdir "$quota" && echo '100000 100000' > "$quota/cpu.max"

mark READY "$(cut -d' ' -f1 /proc/uptime)"
for user in "${USERS[@]}"; do
    mark FACTS "$user" "$(as "$user" "$here/guest-facts")"
    for entry in "${SUITES[@]}"; do
        mark BEGIN "$user" "$entry"
        piped as "$user" "$here/guest-suite" "${entry#* }" $(part "$user" "${entry%% *}") $(skipped "$user" "${entry%% *}")
        mark END "$user" "$entry" "$?"
    done
done
mark DONE
# The images are thrown away: nothing to stop in order, nothing to sync.
systemctl poweroff --force --force
