package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/network"
	"github.com/skillrun/skillrun/internal/network/credential"
	"github.com/skillrun/skillrun/internal/network/policy"
)

// A proxyConfig is the HTTP proxy that opens the connections of sandboxes and builds (docs/network.md). An empty URL:
// there is none.
type proxyConfig struct {
	URL          string       `yaml:"url"`
	Username     string       `yaml:"username"`
	Password     secretConfig `yaml:"password"`
	CAFile       string       `yaml:"ca_file"`
	ResolveNames bool         `yaml:"resolve_names"`
	NoProxy      []string     `yaml:"no_proxy"`
}

// maxNoProxy bounds the entries of no_proxy, which go into each packet that attaches a network.
const maxNoProxy = 200

// proxy converts the key network_proxy, after check has accepted it. It returns nil without a proxy.
func (c *proxyConfig) proxy() *network.Proxy {
	u, err := parseProxy(c.URL)
	if c.URL == "" || err != nil {
		return nil
	}
	port, _ := strconv.ParseUint(u.Port(), 10, 16) // parseProxy has checked it
	p := &network.Proxy{Host: u.Hostname(), Port: uint16(port), Secure: u.Scheme == "https", Username: c.Username,
		Password: c.Password.source(), ResolvesNames: c.ResolveNames}
	if c.CAFile != "" {
		p.CA = credential.Source{File: c.CAFile}
	}
	for _, text := range c.NoProxy {
		if prefix, err := parsePrefix(text); err == nil {
			p.Direct.Prefixes = append(p.Direct.Prefixes, prefix)
		} else {
			p.Direct.Names = append(p.Direct.Names, text)
		}
	}
	return p
}

// parseProxy parses the URL of a proxy. No error has the text: it may have a password.
func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("not the URL of an HTTP proxy; write http://HOST:PORT or https://HOST:PORT")
	case u.User != nil:
		return nil, errors.New("the URL has a user name; write it into network_proxy.username, and the place of the password into network_proxy.password")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil, errors.New("the URL has no port from 1 to 65535; write http://HOST:PORT or https://HOST:PORT")
	}
	return u, nil
}

// parsePrefix parses an address or a CIDR. As in rules, IPv6 may be in brackets.
func parsePrefix(text string) (netip.Prefix, error) {
	if inner, ok := strings.CutSuffix(text, "]"); ok && strings.Contains(text, ":") {
		text = strings.TrimPrefix(inner, "[")
	}
	if a, err := netip.ParseAddr(text); err == nil {
		// ::ffff:192.0.2.7 is the same address as 192.0.2.7, and has another length of its prefix.
		a = a.Unmap()
		return a.Prefix(a.BitLen())
	}
	return netip.ParsePrefix(text)
}

// check reports every mistake in the key, without reading a file; inspectProxy reads them.
func (c *proxyConfig) check(bad badFunc) {
	const key = "network_proxy"
	if c.URL == "" {
		if c.Username != "" || c.Password != (secretConfig{}) || c.CAFile != "" || c.ResolveNames || len(c.NoProxy) > 0 {
			bad(key, "has no url; write url: http://HOST:PORT, or remove the other keys")
		}
		return
	}
	if _, err := parseProxy(c.URL); err != nil {
		bad(join(key, "url"), "%v", err)
	}
	switch {
	// A password and a user name go together: the header Proxy-Authorization needs both (RFC 7617), and its format
	// ends the user name at the first colon.
	case c.Password != (secretConfig{}):
		(&credentialConfig{Secret: c.Password}).checkSecret(join(key, "password"), bad)
		if c.Username == "" {
			bad(join(key, "username"), "is not set, but network_proxy.password is; write the user name of the password")
		} else if strings.ContainsAny(c.Username, ":\r\n\x00") {
			bad(join(key, "username"), "%q; write a name without a colon, for the password", c.Username)
		}
	case c.Username != "":
		bad(join(key, "password"), "is not set, but network_proxy.username is; write {file: PATH}, {systemd_credential: NAME} or {env: NAME}")
	}
	if c.CAFile != "" && !filepath.IsAbs(c.CAFile) {
		bad(join(key, "ca_file"), "the path is not absolute; begin it with /")
	}
	if len(c.NoProxy) > maxNoProxy {
		bad(join(key, "no_proxy"), "%d entries; at most %d", len(c.NoProxy), maxNoProxy)
	}
	for i, text := range c.NoProxy {
		if prefix, err := parsePrefix(text); err == nil {
			if base := prefix.Masked(); prefix != base {
				bad(index(join(key, "no_proxy"), i), "%q: the address has bits beyond the prefix length; write %s or %s", text, base, prefix.Addr())
			}
		} else if d, err := policy.ParseDomain(text); err != nil || d.Port() != 0 {
			bad(index(join(key, "no_proxy"), i), "%q is no destination; write example.com, *.example.com, 192.0.2.7 or 10.0.0.0/8, without a port", text)
		}
	}
}

// inspectProxy reads the files of the proxy. Its environment and systemd credentials are the daemon's: see
// inspectCredentials.
func (c *config) inspectProxy(bad badFunc) {
	if p := c.NetworkProxy.proxy(); p != nil {
		inspectFiles("network_proxy.password", p.Password, "network_proxy.ca_file", p.CA, bad)
	}
}

const unusableProxy = "executions with a network end as SETUP_FAILED, and skillrun prepare fails"

// warnProxy logs a password or a file that can't be read at the start.
func (c *config) warnProxy(log *slog.Logger) {
	if err := c.checkProxyFiles(); err != nil {
		log.Error("the proxy can't be used: "+unusableProxy, "err", err)
	}
}

// proxyProblems returns why the proxy can't be used now.
func (c *config) proxyProblems() (texts []string) {
	if err := c.checkProxyFiles(); err != nil {
		texts = append(texts, fmt.Sprintf("the proxy of network_proxy can't be used: %v; %s", err, unusableProxy))
	}
	return texts
}

func (c *config) checkProxyFiles() error {
	used := !c.Network.network().None() || c.Environments.Index != "" || c.Environments.Registry != ""
	if p := c.NetworkProxy.proxy(); p != nil && used {
		return p.Check()
	}
	return nil
}
