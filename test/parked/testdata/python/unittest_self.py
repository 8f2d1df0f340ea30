import io, unittest
class T(unittest.TestCase):
    def test_fails(self): self.assertEqual(1, 2)
    def test_works(self): pass
said = io.StringIO()
r = unittest.main(exit=False, testRunner=unittest.TextTestRunner(said)).result
print(r.testsRun, r.failures[0][1])
