package bench

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

// The internet of the rows with a network is two namespaces with a cable. One has the servers. The other has
// the daemon and the programs that it is compared with. No packet leaves the two.
const (
	serverAddress  = "20.1.0.1" // public for the rules, but it leads here only from the machine's namespace
	machineAddress = "20.1.0.2"
)

// Ports of the servers. closedPort has no server.
const (
	sinkPort   = "7001" // reads everything, then writes a byte
	sourcePort = "7002" // writes until the client ends
	greetPort  = "7003" // writes a byte and ends
	holdPort   = "7004" // writes a byte, and waits for the client's end
	closedPort = "7009"
)

// An internet is the two namespaces. It must be closed.
type internet struct {
	servers, machine *namespace
	listeners        []net.Listener
}

// newInternet returns notRun on a machine that can't make networks.
func newInternet() (i *internet, err error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, notRun("iproute2 is not installed")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return nil, notRun("the machine has no /dev/net/tun")
	}
	i = &internet{}
	if i.servers, err = newNamespace(); err == nil {
		i.machine, err = newNamespace()
	}
	if err == nil {
		err = connect(i.machine, machineAddress, i.servers, serverAddress)
	}
	for port, serve := range map[string]func(net.Conn){sinkPort: sink, sourcePort: source, greetPort: greet, holdPort: hold} {
		if err == nil {
			err = i.listen(port, serve)
		}
	}
	if err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

// listen starts a server. A socket stays in the network namespace in which it was made
// (network_namespaces(7)), so only Listen runs on the namespace's thread.
func (i *internet) listen(port string, serve func(net.Conn)) error {
	return i.servers.do(func() error {
		l, err := net.Listen("tcp4", serverAddress+":"+port)
		if err != nil {
			return err
		}
		i.listeners = append(i.listeners, l)
		go accept(l, serve)
		return nil
	})
}

// close ends the servers and both namespaces. It may be called for an internet that newInternet could not
// complete.
func (i *internet) close() {
	for _, l := range i.listeners {
		l.Close()
	}
	i.machine.close()
	i.servers.close()
}

// accept serves connections until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // no descriptor is free: some connections will end
			continue
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// block is how many bytes both sides of a stream write and read at a time.
const block = 256 << 10

// sink answers only after it has read everything. So the client's time covers the arrival of all bytes, not
// only the writing into the buffers of its socket.
func sink(c net.Conn) {
	// Without the methods of net.TCPConn and io.Discard that choose another size of buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, block))
	if err == nil {
		greet(c)
	}
}

// source writes until the client closes the connection, which is the only way in which it ends.
func source(c net.Conn) {
	for b := make([]byte, block); ; {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// greet ends the connection first: the client's machine then has no connection in TIME_WAIT, and can use
// the port again.
func greet(c net.Conn) { c.Write([]byte("x")) } //nolint:errcheck // the client sees it

// hold keeps the connection until the client ends it, for the row with many connections at a time.
func hold(c net.Conn) {
	greet(c)
	io.Copy(io.Discard, c)
}
