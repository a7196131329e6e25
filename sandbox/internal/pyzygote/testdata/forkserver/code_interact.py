# stdin: print(1)\n1/0
import code
code.interact(banner="b", exitmsg="e")
