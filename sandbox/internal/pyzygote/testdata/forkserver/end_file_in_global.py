f = open("data", "w")
f.write("unflushed")
