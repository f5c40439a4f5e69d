"""The windows of this process and its children on the X display."""

import ctypes
from ctypes import byref, c_long, c_uint, c_ulong, c_void_p

import psutil


class XDisplay:
    """A connection to the X server that DISPLAY names. It stays open: some servers restart after their last client."""

    def __init__(self) -> None:
        self._x11 = ctypes.CDLL('libX11.so.6')
        for name in ('XOpenDisplay', 'XSetErrorHandler'):
            getattr(self._x11, name).restype = c_void_p
        for name in ('XDefaultRootWindow', 'XInternAtom'):
            getattr(self._x11, name).restype = c_ulong
        self._connection = c_void_p(self._x11.XOpenDisplay(None))
        if not self._connection:
            raise OSError('no X server answers at DISPLAY')
        self._process_of_window = c_ulong(self._x11.XInternAtom(self._connection, b'_NET_WM_PID', False))

    def windows(self) -> list[int]:
        """Their numbers. Toolkits (SDL, GLFW, Qt, GTK) write the process into a property of each window."""
        ignore = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(lambda *_: 0)
        previous = self._x11.XSetErrorHandler(ignore)  # a window may end after it was listed
        me = psutil.Process()
        processes = {me.pid, *(child.pid for child in me.children(recursive=True))}
        pending, found = [self._x11.XDefaultRootWindow(self._connection)], []
        while pending:
            window = pending.pop()
            pending += self._children(window)
            if self._process(window) in processes:
                found.append(window)
        self._x11.XSetErrorHandler(c_void_p(previous))
        return found

    def _children(self, window: int) -> list[int]:
        children, count, other = ctypes.POINTER(c_ulong)(), c_uint(), c_ulong()
        self._x11.XQueryTree(
            self._connection, c_ulong(window), byref(other), byref(other), byref(children), byref(count)
        )
        numbers = children[: count.value]
        self._x11.XFree(children)
        return numbers

    def _process(self, window: int) -> int | None:
        value, count, other = ctypes.POINTER(c_ulong)(), c_ulong(), c_ulong()
        request = self._connection, c_ulong(window), self._process_of_window, c_long(0), c_long(1), False, c_ulong(0)
        self._x11.XGetWindowProperty(*request, byref(other), byref(c_uint()), byref(count), byref(other), byref(value))
        number = value[0] if count.value else None
        self._x11.XFree(value)
        return number
