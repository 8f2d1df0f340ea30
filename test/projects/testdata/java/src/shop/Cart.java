package shop;

import java.util.LinkedHashMap;
import java.util.Map;

/** What a customer wants to buy. */
public final class Cart {
    private final Map<String, Integer> cents = new LinkedHashMap<>();

    /** Puts a number of one thing into the cart, at a price in cents each. */
    public void add(String thing, int number, int price) {
        if (number < 1) {
            throw new IllegalArgumentException(number + " of " + thing);
        }
        cents.merge(thing, number * price, Integer::sum);
    }

    /** Returns what all of it costs, in cents. */
    public int total() {
        return cents.values().stream().mapToInt(Integer::intValue).sum();
    }
}
