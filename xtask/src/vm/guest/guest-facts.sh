#!/bin/bash
# Guest, as the user under test: one line of what this kernel and this position in the cgroup tree offer.
landlock=$(python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))')
path=$(sed -n 's/^0:://p' /proc/self/cgroup)
cgroup=/sys/fs/cgroup$path
controllers=$(tr ' ' ',' < "$cgroup/cgroup.controllers")
# Proved by doing. A cgroup with processes of its own can't hand out controllers, so we step into a leaf
# first; in a login session others share the cgroup, and even root only gets as far as making a child.
child=refused
if mkdir "$cgroup/stockade-leaf" "$cgroup/stockade-child" 2> /dev/null; then
    child=made
    echo $$ > "$cgroup/stockade-leaf/cgroup.procs"
    if echo '+cpu +memory +pids' 2> /dev/null > "$cgroup/cgroup.subtree_control" &&
        echo 64M > "$cgroup/stockade-child/memory.max" && echo 32 > "$cgroup/stockade-child/pids.max" &&
        echo '50000 100000' > "$cgroup/stockade-child/cpu.max" &&
        [ "$(cat "$cgroup/stockade-child/memory.max")" = 67108864 ]; then
        child=limited
    fi
    rmdir "$cgroup/stockade-child"
fi
namespaces=refused
unshare --user --map-root-user --mount --pid --fork true 2> /dev/null && namespaces=made
echo "uid=$(id -u) kernel=$(uname -r) landlock=$landlock controllers=$controllers child=$child namespaces=$namespaces cgroup=$path"
