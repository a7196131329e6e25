// Netclient is the Go program in tests of networks. It prints what a server answers, or the error.
package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	var err error
	switch url := os.Args[2]; os.Args[1] {
	case "get": // the URL
		err = get(http.DefaultClient, url, "")
	case "fronted": // the URL, and another host on the same connection
		if err = get(http.DefaultClient, url, ""); err == nil {
			err = get(http.DefaultClient, url, os.Args[3])
		}
	case "hidden": // the URL, and a name that shows in place of the URL's
		config := &tls.Config{MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: configList(os.Args[3])}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = config
		err = get(&http.Client{Transport: transport}, url, "")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func get(c *http.Client, url, host string) error {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Host = host
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	fmt.Print(answer.StatusCode, " ")
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// configList is an ECHConfigList (RFC 9849) for a public name, with a new key.
func configList(publicName string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	sized := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	contents := []byte{1, 0, 0x20} // config id, DHKEM(X25519, HKDF-SHA256)
	contents = append(contents, sized(key.PublicKey().Bytes())...)
	contents = append(contents, sized([]byte{0, 1, 0, 1})...) // HKDF-SHA256, AES-128-GCM
	contents = append(contents, 32, byte(len(publicName)))
	contents = append(contents, publicName...)
	contents = append(contents, 0, 0) // no extensions
	return sized(append([]byte{0xfe, 0x0d}, sized(contents)...))
}
