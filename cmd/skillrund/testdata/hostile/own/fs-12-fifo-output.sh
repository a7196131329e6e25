cd /workspace
mkfifo result.json && echo "PASS planted a fifo"
python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("sock"); print("PASS planted a socket")'
mkdir sub
mkfifo sub/late
(sleep 60 >sub/late) &
ln result.json again.json
echo text >plain.txt
