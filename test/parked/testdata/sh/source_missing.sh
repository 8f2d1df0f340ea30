. ./nothing; echo never
