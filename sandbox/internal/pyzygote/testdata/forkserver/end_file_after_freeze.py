# differs: gc.freeze in a script does not cover preimported modules
import gc, json
before = open("before", "w")
before.write("unflushed")
json.before = open("module-before", "w")
json.before.write("unflushed")
gc.freeze()
after = open("after", "w")
after.write("unflushed")
json.JSONEncoder.after = open("class-after", "w")
json.JSONEncoder.after.write("unflushed")
