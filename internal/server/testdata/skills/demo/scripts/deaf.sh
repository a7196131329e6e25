# Reads nothing until its input has a file named go, then everything.
echo "ready"
read -r first
echo "first $first"
wc -c
