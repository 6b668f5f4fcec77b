#!/bin/busybox sh
# The first process of the guest: mounts what a booted machine has, with
# cgroup v2 alone as systemd does, runs the commands and powers off.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /root /bin /var/tmp
/bin/busybox --install -s /bin
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
chmod 1777 /tmp /var/tmp /dev/shm
ip link set lo up
# The controllers are those that systemd turns on; cpuset is not among them.
echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
# The one block device of the guest.
if [ -e /etc/one-disk ]; then
	[ ! -e /lib/loop.ko ] || insmod /lib/loop.ko
	truncate -s 64M /run/disk
	losetup /dev/loop0 /run/disk
fi
ulimit -n 65536
echo "@@tenon ready"
. /commands.sh
echo "@@tenon done"
poweroff -f
