require 'json'
require 'socket'
require 'tempfile'
require 'open3'
server = TCPServer.new('127.0.0.1', 0)
t = Thread.new { c = server.accept; c.puts(c.gets.upcase); c.close }
s = TCPSocket.new('127.0.0.1', server.addr[1])
s.puts 'hello'
raise unless s.gets == "HELLO\n"
t.join
out, status = Open3.capture2('sort', stdin_data: "b\na\n")
raise unless out == "a\nb\n" && status.success?
Tempfile.create('x') { |f| f.write('y'); f.flush; raise unless File.size(f.path) == 1 }
r, w = IO.pipe
pid = fork { w.puts JSON.generate({ a: 1 }); exit! 0 }
Process.wait(pid)
raise unless JSON.parse(r.gets) == { 'a' => 1 }
raise unless Array.new(4) { |i| Thread.new { i * i } }.sum(&:value) == 14
puts 'ok'
