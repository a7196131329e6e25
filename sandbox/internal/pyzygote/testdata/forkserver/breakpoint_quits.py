# stdin: w\np 1+1\nq
breakpoint()
print("not reached")
