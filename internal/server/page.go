package server

import (
	"encoding/base64"
	"strings"

	"google.golang.org/protobuf/proto"
)

// pageSize is the page_size of a request: 0 is def, and more than maxPage is maxPage.
func pageSize(asked uint32, def int) int {
	if asked == 0 {
		return def
	}
	return int(min(asked, maxPage))
}

// pageToken is the token of the page after the entry last. It names the list: a token of another list or of another
// tenant's list would skip entries that the caller has never seen.
func pageToken(list, last string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(list + "\n" + last))
}

// parsePageToken returns the entry after which a page of the list begins, and "" for the first page, which has no token.
func parsePageToken(list, token string) (last string, err error) {
	if token == "" {
		return "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	last, ok := strings.CutPrefix(string(text), list+"\n")
	if err != nil || !ok {
		return "", invalidPageToken()
	}
	return last, nil
}

// invalidPageToken refuses a token that the list did not make.
func invalidPageToken() error {
	return invalid("page_token", "not a token of this list; start again without one")
}

// fittingPage gets a page, and ever smaller pages until one fits into a message: no size of an
// entry is known from which a page_size could follow. It returns a page of one entry whatever
// its size.
func fittingPage[M proto.Message](size int, get func(size int) (M, error)) (M, error) {
	for {
		m, err := get(size)
		if err != nil || size == 1 || proto.Size(m) <= maxAnswerBytes {
			return m, err
		}
		// Half as many entries, so a page takes at most nine more tries: maxPage is below 1<<10.
		size = max(size/2, 1)
	}
}

// fitting turns as many of a list into messages as room, in bytes, allows, and subtracts them
// from room. Names may be long, and clients refuse an answer that is too large. It stops at the
// first entry that does not fit, so the result is always the beginning of the list.
func fitting[T any, M proto.Message](room *int, list []T, from func(T) M) []M {
	var out []M
	for _, one := range list {
		m := from(one)
		if *room -= proto.Size(m); *room < 0 {
			return out
		}
		out = append(out, m)
	}
	return out
}
