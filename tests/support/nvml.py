"""A module in the place of NVML's package, for what no card here can show: its answers and faults."""

UUID = "GPU-5c8e1f00-0000-0000-0000-000000000001"
# Two equal cards: 87 % busy with 7 GiB in use, and one that is split.
WORKS = f"""
class NVMLError(Exception): pass
class NotSupported(NVMLError): pass
class Facts:
    def __init__(self, **facts): self.__dict__.update(facts)
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetName(card): return "H100"
def nvmlDeviceGetHandleByIndex(index):
    if index > 1: raise NVMLError("no such card")
    return index
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "{UUID}": raise NVMLError("no such card")
    return 0
def nvmlDeviceGetMigMode(card):
    if card == 0: raise NotSupported("not supported")
    return [1, 1]
def nvmlDeviceGetUtilizationRates(card): return Facts(gpu=87, memory=10)
def nvmlDeviceGetMemoryInfo(card): return Facts(total=80 << 30, free=73 << 30, used=7 << 30)
"""
HANGS = """
import time
def nvmlInit():
    print("asked", flush=True)
    time.sleep(1e6)
"""
# A node with two sockets of 40 cores each and two cards a socket, the first two on the first one.
SOCKETS = """
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 4
def nvmlDeviceGetName(card): return "A100"
def nvmlDeviceGetHandleByIndex(index): return index
class NVMLError(Exception): pass
def nvmlDeviceGetMigMode(card): return [0, 0]
def nvmlDeviceGetCpuAffinity(card, words):
    mask = ((1 << 40) - 1) << (0 if card < 2 else 40)
    return [(mask >> 64 * word) & ((1 << 64) - 1) for word in range(words)]
"""
