import io, json
json.JSONEncoder.x = io.BufferedRWPair(open("/dev/zero", "rb", 0), open("data", "wb", 0))
json.JSONEncoder.x.write(b"unflushed")
