# Writes numbers as the Romans did.
module Roman
  DIGITS = { 'M' => 1000, 'CM' => 900, 'D' => 500, 'CD' => 400, 'C' => 100, 'XC' => 90, 'L' => 50, 'XL' => 40,
             'X' => 10, 'IX' => 9, 'V' => 5, 'IV' => 4, 'I' => 1 }.freeze

  def self.write(number)
    raise ArgumentError, "#{number} is not positive" unless number.positive?

    DIGITS.inject('') do |text, (digit, value)|
      count, number = number.divmod(value)
      text + digit * count
    end
  end
end
