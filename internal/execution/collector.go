package execution

// take keeps what fits of p and returns it.
func (k *kept) take(p []byte) []byte {
	p = p[:min(int64(len(p)), k.limit-int64(len(k.buf)))]
	k.buf = append(k.buf, p...)
	return p
}

func (k *kept) bytes() []byte { return k.buf }

// after returns the kept bytes beyond the first n.
func (k *kept) after(n int64) []byte { return k.buf[max(0, min(n, int64(len(k.buf)))):] }

func (c *collector) overrun() bool { return c.dropped.Load() }

func (c *collector) writeStdout(p []byte) error {
	if fits := c.keep(&c.stdout, p); c.to != nil && len(fits) > 0 {
		c.turn.Lock()
		defer c.turn.Unlock()
		return c.to.Stdout(fits)
	}
	return nil
}

func (c *collector) writeStderr(p []byte) error {
	if fits := c.keep(&c.stderr, p); c.to != nil && len(fits) > 0 {
		c.turn.Lock()
		defer c.turn.Unlock()
		return c.to.Stderr(fits)
	}
	return nil
}

// keep returns what fits of p, and wakes who waits for it.
func (c *collector) keep(k *kept, p []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	fits := k.take(p)
	if len(fits) < len(p) {
		c.dropped.Store(true)
	}
	if len(fits) > 0 && c.news != nil {
		close(c.news)
		c.news = nil
	}
	return fits
}

// after returns the kept output beyond a position, and a channel that closes when there is more.
func (c *collector) after(at Position) (stdout, stderr []byte, news <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news == nil {
		c.news = make(chan struct{})
	}
	return c.stdout.after(at.Stdout), c.stderr.after(at.Stderr), c.news
}
