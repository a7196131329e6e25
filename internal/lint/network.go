package lint

import (
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// pythonNetwork has modules whose purpose is the network; their submodules count, too.
// urllib.parse and http.server are not in it. No name is longer than maxNetworkName.
var pythonNetwork = set(`
	requests urllib.request urllib3 http.client socket aiohttp httpx websocket websockets ftplib smtplib imaplib poplib nntplib
	telnetlib xmlrpc.client paramiko fabric grpc boto3 botocore google.cloud googleapiclient openai anthropic cohere replicate
	slack_sdk telegram tweepy praw yt_dlp youtube_dl feedparser playwright selenium pyppeteer scrapy github gitlab stripe twilio
	notion_client kubernetes docker psycopg psycopg2 pymysql pymongo redis asyncpg mcp huggingface_hub fal_client yfinance wget`)

const maxNetworkName = 32 // bytes

// By language; a match names the sign in its groups. The expressions look at one line, and
// RE2 runs in time linear in its length, so a stranger's text can't stall them.
var otherNetwork = map[string]*lazyregexp.Regexp{
	"bash": lazyregexp.New(`(?:^|[|;&({]|\b(?:then|do|else|if|while|until|sudo|exec|time|xargs|!)\s|=)\s*["']?(` +
		`curl|wget|nc|ncat|netcat|telnet|ssh|scp|sftp|aws|gcloud|gsutil|az|gh|npx|` +
		`(?:pip3?|uv pip|npm|pnpm|yarn|bun|apt|apt-get|brew|gem|cargo|go) (?:-\S+ )*(?:install|add|get|ci|create|update)|python3? -m pip install|` +
		`git (?:-\S+ )*(?:clone|fetch|pull|push|ls-remote)[^\n]*(?:://|git@)[^\s]*)(?:\s|$)`),
	"node": lazyregexp.New(`(?:\brequire\(|\bfrom\s+|\bimport\s*\(?\s*)["']((?:node:)?(?:http|https|net|dgram|tls|http2)|axios|node-fetch|undici|got|ws|` +
		`playwright|puppeteer|superagent|openai|@anthropic-ai/sdk)["']|(?:^|[^.\w$])(fetch|XMLHttpRequest|WebSocket)\s*\(`),
	"ruby": lazyregexp.New(`^\s*require\s*\(?["'](net/https?|net/ftp|net/smtp|open-uri|socket|httparty|faraday|rest-client)["']`),
	"perl": lazyregexp.New(`^\s*use\s+(LWP\S*|HTTP::Tiny|IO::Socket\S*|Net::\w+|Mojo::UserAgent|WWW::Mechanize)\b`),
}

// network looks for the first sign that a program uses the network, where the skill
// doesn't ask for it.
// One finding for each program: the remedy is the same for all of its signs.
func (c *check) network(p program) {
	if c.skill.Manifest.NetworkAccess {
		return
	}
	if sign, line := p.networkSign(); sign != "" {
		c.warn(p.path, line, RuleNetworkUndeclared,
			"%s looks like use of the network, and the skill asks for none: add network_access: true to SKILL.md, or name the skill in the tenant's network.skills; ignore this if it uses loopback only", sign)
	}
}

var inet = lazyregexp.New(`AF_INET|create_connection|create_server|getaddrinfo|gethostbyname|\.connect\(\(`)

// localSockets reports whether a Python source knows only sockets with a path.
func localSockets(text string) bool {
	return strings.Contains(text, "AF_UNIX") && !inet.MatchString(text)
}

// networkSign is what looks like use of the network, and its line.
func (p program) networkSign() (string, int) {
	if p.language == "python" {
		local := localSockets(p.text)
		for _, m := range pythonImports(p.text) {
			// a.b.c counts if a.b.c, a.b or a is in the list. A longer name may have very many parts.
			for name := m.module[:min(len(m.module), maxNetworkName+1)]; name != ""; name = name[:max(strings.LastIndexByte(name, '.'), 0)] {
				if pythonNetwork[name] && !(name == "socket" && local) {
					return "import of " + name, m.line
				}
			}
		}
		return "", 0
	}
	sign := otherNetwork[p.language]
	if sign == nil {
		return "", 0
	}
	for i, line := range p.withoutComments() {
		if m := sign.FindStringSubmatch(line); m != nil {
			return strings.Join(m[1:], ""), i + 1
		}
	}
	return "", 0
}
