require 'minitest/autorun'
require 'roman'

class RomanTest < Minitest::Test
  def test_write
    { 4 => 'IV', 9 => 'IX', 1994 => 'MCMXCIV', 2026 => 'MMXXVI' }.each do |number, text|
      assert_equal text, Roman.write(number)
    end
  end

  def test_zero
    assert_raises(ArgumentError) { Roman.write(0) }
  end
end
