#!/bin/sh
# First program of the guest: loads the drivers of its disk and starts the program on it that
# skillrun.init= of the kernel's command line names.
set -e # if PID 1 ends, the kernel panics, and the machine stops
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t devtmpfs dev /dev
while read -r module; do
	busybox insmod "/modules/$module.ko"
done </modules/order
busybox ifconfig lo 127.0.0.1 up
busybox hostname cgroup2
busybox mount -t ext4 /dev/vda /newroot
busybox mount -o move /dev /newroot/dev
for word in $(busybox cat /proc/cmdline); do
	case $word in skillrun.init=*) init=${word#*=} ;; esac
done
busybox umount /proc
exec busybox switch_root /newroot "$init"
