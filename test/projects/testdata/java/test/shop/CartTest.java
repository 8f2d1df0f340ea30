package shop;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import org.junit.Test;

public class CartTest {
    @Test
    public void total() {
        Cart cart = new Cart();
        cart.add("apple", 3, 40);
        cart.add("pear", 1, 55);
        cart.add("apple", 1, 40);
        assertEquals(215, cart.total());
    }

    @Test
    public void nothing() {
        assertThrows(IllegalArgumentException.class, () -> new Cart().add("apple", 0, 40));
    }
}
