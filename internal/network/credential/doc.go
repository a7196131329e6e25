// Package credential binds secrets to domains, so that a program can use a secret without having it.
//
// Theory of operation. The configuration has Bindings: a domain, a header, and where the secret is.
// [Open] reads the secrets of one execution's Bindings and makes an [Authority] for it. The network
// helper gets both (package network), and adds the header to the program's requests to the domain
// (package gateway). To see requests in TLS, the helper answers for the domain with a certificate of
// the Authority. Only this one sandbox trusts the Authority, and only for the bound domains.
//
// A secret is in the daemon's memory and in the memory of the tenant's helper. Errors and logs have
// names of credentials, and never values.
package credential
