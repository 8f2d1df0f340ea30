import random, uuid, secrets
random.seed(4)
print(random.random(), random.randrange(100), uuid.uuid5(uuid.NAMESPACE_DNS, "x"))
print(len(secrets.token_hex()), uuid.uuid4().version, uuid.uuid1().version)
