"""How much memory is in use on each NVIDIA device: a program of its own, so that a driver that hangs, hangs it alone.

Run by `device_memory.py` as `python -I -S nvml.py`; nothing of podvisor is imported. It prints one line a device,
`IDENTITY BYTES`, or one line why not. Functions and structs: NVIDIA's "NVML API Reference Guide".
"""

import ctypes
import os
import sys

UNAVAILABLE = 69
"""EX_UNAVAILABLE of sysexits.h: no library, no driver, no permission. Waiting will not change it."""
_LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED = 3
"""NVML_ERROR_NOT_SUPPORTED: a device that shares the memory of the host has no figure of its own."""
_UUID_BYTES = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE."""


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [  # ctypes wants a list
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class _Unavailable(Exception):
    pass


class _Failed(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _Nvml:
    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise _Unavailable(f"{_LIBRARY} cannot be loaded: {error}") from None
        self._library.nvmlErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            raise _Failed(f"{function}: {self._library.nvmlErrorString(code).decode()}", code)

    def devices(self, visible: str | None) -> list[ctypes.c_void_p]:
        """Those that the engine uses, by CUDA_VISIBLE_DEVICES: numbers, or UUIDs of devices and of MIG slices."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        if visible is None:
            return [self._by_index(number) for number in range(count.value)]
        wanted = [word.strip() for word in visible.split(",") if word.strip()]
        if all(word.isdecimal() and int(word) < count.value for word in wanted):
            return [self._by_index(int(word)) for word in wanted]
        try:
            return [self._by_uuid(word) for word in wanted]
        except _Failed:
            return [self._by_index(number) for number in range(count.value)]  # abbreviated, or something newer

    def identity(self, device: ctypes.c_void_p) -> str:
        uuid = ctypes.create_string_buffer(_UUID_BYTES)
        self.call("nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(_UUID_BYTES))
        return uuid.value.decode()

    def used(self, device: ctypes.c_void_p) -> int | None:
        memory = _Memory()
        try:
            self.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        except _Failed as failure:
            if failure.code == _NOT_SUPPORTED:
                return None
            raise
        return int(memory.used)

    def _by_index(self, number: int) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
        return device

    def _by_uuid(self, uuid: str) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(device))
        return device


def main() -> int:
    try:
        nvml = _Nvml()
        try:
            nvml.call("nvmlInit_v2")
        except _Failed as failure:
            raise _Unavailable(str(failure)) from None
        for device in nvml.devices(os.environ.get("CUDA_VISIBLE_DEVICES")):
            if (used := nvml.used(device)) is not None:
                print(nvml.identity(device), used)
    except _Unavailable as reason:
        print(reason)
        return UNAVAILABLE
    except (_Failed, AttributeError) as failure:
        print(failure)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
