package lint

func (c *check) packages() error { return nil }
