# Prints its process ID in the sandbox and waits to be ended.
echo "ready"
exec sleep 600
