package server

import "google.golang.org/protobuf/proto"

// pageSize checks the page_size of a request; 0 is def.
func pageSize(asked uint32, def int) (int, error) {
	switch {
	case asked > maxPage:
		return 0, invalid("page_size", "%d; at most %d", asked, maxPage)
	case asked == 0:
		return def, nil
	}
	return int(asked), nil
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
		size = max(size/2, 1)
	}
}

// fitting turns as many of a list into messages as room, in bytes, allows, and
// takes them from it. A name may be long, and an answer that no client takes is
// none.
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
