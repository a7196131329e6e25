# Answers each line of its input at once, and says when the input ends.
echo "ready"
while IFS= read -r line; do
	echo "got $line"
done
echo "end of input"
