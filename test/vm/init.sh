#!/bin/busybox sh
# The first process of the guest. It mounts the usual file systems, with only
# cgroup v2 like systemd, also with its option for the protection of memory,
# runs the commands and powers off. If the guest has systemd on its disk, it is
# the first process instead: it mounts cgroup v2 itself, and runs the commands as a
# service (systemd_test.go).
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
if [ -e /etc/has-systemd ]; then
	cp /commands.sh /run/commands.sh
	ip link set lo up
	for m in $(cat /etc/has-systemd); do insmod /lib/$m.ko || poweroff -f; done
	mkdir /disk
	mount -t ext4 /dev/nvme0n1 /disk || poweroff -f
	for d in dev run sys proc; do mount -o move /$d /disk/$d; done
	exec /bin/busybox switch_root -c /dev/console /disk /lib/systemd/systemd
fi
mount -t tmpfs tmp /tmp
mount -t cgroup2 -o memory_recursiveprot cgroup2 /sys/fs/cgroup
chmod 1777 /tmp /var/tmp /dev/shm
ip link set lo up
# systemd enables these controllers, but not cpuset.
echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
# The only block device of the guest.
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
