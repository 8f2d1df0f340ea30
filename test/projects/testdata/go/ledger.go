// Package ledger keeps what accounts hold, in cents.
package ledger

import "fmt"

// Ledger maps accounts to what they hold.
type Ledger map[string]int

// Move takes an amount from one account to another.
func (l Ledger) Move(from, to string, amount int) error {
	if l[from] < amount {
		return fmt.Errorf("%s holds %d, not %d", from, l[from], amount)
	}
	l[from] -= amount
	l[to] += amount
	return nil
}
