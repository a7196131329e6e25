exec >&- 2>&-
sleep 1
exit 7
