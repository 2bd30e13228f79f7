#!/bin/busybox sh
# Guest, PID 1 of the initial file system: load the disk's driver, then hand over to the real root.
/bin/busybox mkdir -p /dev /root
/bin/busybox mount -t devtmpfs none /dev
while read -r module; do
    /bin/busybox insmod "/modules/$module" || echo "initrd: insmod $module failed"
done < /modules/order
# The driver probes in the background: the device appears some milliseconds after insmod returned.
tries=0
while [ ! -b /dev/vda ] && [ "$tries" -lt 600 ]; do
    /bin/busybox usleep 100000
    tries=$((tries + 1))
done
/bin/busybox mount -t ext4 -o rw /dev/vda /root || echo "initrd: no root file system on /dev/vda"
/bin/busybox umount /dev
exec /bin/busybox switch_root /root /sbin/init
