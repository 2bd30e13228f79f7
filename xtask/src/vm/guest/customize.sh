#!/bin/bash
# Host, as root: turns a fresh root directory into the guest. Arguments: the root, then one directory of
# kernel modules per kernel. What it does is part of the image's cache key, because this text is.
set -euo pipefail
root=$1
shift

mkdir -p "$root/usr/lib/modules"
for modules in "$@"; do
    cp -a "$modules" "$root/usr/lib/modules/"
    chroot "$root" depmod "$(basename "$modules")"
done

echo stockade-guest > "$root/etc/hostname"
printf '127.0.0.1 localhost stockade-guest\n::1 localhost\n' > "$root/etc/hosts"
# A known id: an empty one makes every boot a first boot, with all its presets.
echo 00000000000000000000000000000001 > "$root/etc/machine-id"
printf '/dev/vda / ext4 defaults 0 0\n/dev/vdb /opt/stockade ext4 ro,nofail,x-systemd.device-timeout=60 0 0\n' \
    > "$root/etc/fstab"
mkdir -p "$root/opt/stockade"

chroot "$root" useradd --create-home --uid 1000 --shell /bin/bash tester
# Lingering: the user manager, and so the delegated cgroup, is there without a login.
mkdir -p "$root/var/lib/systemd/linger"
touch "$root/var/lib/systemd/linger/tester"

# Emulated boots wait for nothing that a test doesn't need.
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer \
    systemd-networkd.service systemd-timesyncd.service systemd-random-seed.service getty@tty1.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

install -m 0644 /dev/stdin "$root/etc/systemd/system/stockade-guest.service" <<'UNIT'
[Unit]
Description=Stockade's tests
RequiresMountsFor=/opt/stockade
ConditionFileIsExecutable=/opt/stockade/guest-run
After=systemd-user-sessions.service user@1000.service dbus.service systemd-logind.service
Wants=user@1000.service

[Service]
Type=exec
ExecStart=/opt/stockade/guest-run
StandardInput=null
StandardOutput=journal+console
StandardError=journal+console
TimeoutStartSec=infinity

[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../stockade-guest.service "$root/etc/systemd/system/multi-user.target.wants/stockade-guest.service"

rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
