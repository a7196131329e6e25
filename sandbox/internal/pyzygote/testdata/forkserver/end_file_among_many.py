import json
json.many = [[n] for n in range(100000)]
json.JSONEncoder.x = open("data", "w")
json.JSONEncoder.x.write("unflushed")
