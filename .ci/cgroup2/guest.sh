#!/bin/bash
# PID 1 of the guest: makes it look like a machine that systemd set up, runs
# smoke.sh with its output to the second serial port, and switches the machine off.
set -e # for the lines before smoke.sh: if PID 1 ends, the kernel panics, and the machine stops
export PATH=/usr/local/bin:/usr/bin:/usr/sbin HOME=/root LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs -o nosuid,nodev,noexec sys /sys
mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=1777 shm /dev/shm
mount -t tmpfs -o nosuid,nodev,mode=755 run /run
mount -t tmpfs -o nosuid,nodev,mode=1777 tmp /tmp
ln -s /proc/self/fd /dev/fd
mount --make-rshared /
stty -F /dev/ttyS1 raw

cd /opt/skillrun
bash smoke.sh >/dev/ttyS1 2>&1 </dev/null || true

# run.sh makes a new disk for each run.
echo o >/proc/sysrq-trigger
sleep 60
