x = """never
ended
