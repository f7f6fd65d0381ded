#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""dcuda-info --gpudirect, with /sys and /proc of machines that are made up here.

    gpudirect_test.py PATH_OF_DCUDA_INFO
"""
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

INFO = sys.argv.pop()
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n"
CLOSED_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\n"
SWITCH = "pci0000:3a/0000:3a:00.0/0000:3b:00.0"  # root port, upstream port of a switch


def configuration(control):
    """A bridge's configuration space: an extended capability of another kind, then access control with this word."""
    space = bytearray(0x1000)
    struct.pack_into("<HH", space, 0x100, 0x0001, 0x148 << 4 | 1)
    struct.pack_into("<HHHH", space, 0x148, 0x000D, 1, 0x7F, control)
    return bytes(space)


class Machine:
    def __init__(self, folder, driver=OPEN_DRIVER, modules=""):
        self.root = Path(folder)
        for path in ("sys/bus/pci/devices", "sys/class/infiniband", "proc/driver/nvidia"):
            (self.root / path).mkdir(parents=True)
        if driver:
            (self.root / "proc/driver/nvidia/version").write_text(driver)
        (self.root / "proc/modules").write_text(modules)

    def device(self, way, **files):
        """A PCI device at the end of a way of bridges."""
        folder = self.root / "sys/devices" / way
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if isinstance(text, bytes):
                (folder / name).write_bytes(text)
            else:
                (folder / name).write_text(text + "\n")
        link = self.root / "sys/bus/pci/devices" / folder.name
        if not link.exists():
            link.symlink_to(folder)
        return folder

    def bridge(self, way, control=None):
        space = bytes(64) if control is None else configuration(control)
        self.device(way, **{"class": "0x060400", "vendor": "0x1000", "config": space})

    def gpu(self, way, iommu=None, lanes="16"):
        folder = self.device(way, **{"class": "0x030200", "vendor": "0x10de", "current_link_speed": "2.5 GT/s PCIe",
                                     "current_link_width": lanes, "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"})
        if iommu:
            (folder / "iommu_group").mkdir()
            (folder / "iommu_group/type").write_text(iommu + "\n")

    def card(self, name, way, state="4: ACTIVE"):
        folder = self.device(way, **{"class": "0x020700", "vendor": "0x15b3", "current_link_speed": "16.0 GT/s PCIe",
                                     "current_link_width": "16", "max_link_width": "16"})
        entry = self.root / "sys/class/infiniband" / name
        (entry / "ports/1").mkdir(parents=True)
        (entry / "device").symlink_to(folder)
        (entry / "ports/1/state").write_text(state + "\n")
        (entry / "ports/1/rate").write_text("400 Gb/sec (4X NDR)\n")

    def report(self):
        done = subprocess.run([INFO, "--gpudirect", "--root", self.root], capture_output=True, text=True, timeout=30)
        self.output = done.stdout
        return done.returncode


class GpuDirect(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def machine(self, **how):
        return Machine(self.folder.name, **how)

    def test_one_switch(self):
        here = self.machine()
        for port, device in (("3c:00.0", "3d:00.0"), ("3c:01.0", "3e:00.0")):
            here.bridge(f"{SWITCH}/0000:{port}", control=0)
        here.gpu(f"{SWITCH}/0000:3c:00.0/0000:3d:00.0")
        here.card("mlx5_0", f"{SWITCH}/0000:3c:01.0/0000:3e:00.0")
        self.assertEqual(here.report(), 0, here.output)
        self.assertIn("GPU 0000:3d:00.0, 63.0 GB/s", here.output)  # 32 GT/s, 16 lanes
        self.assertIn("mlx5_0 (0000:3e:00.0), 400 Gb/sec (4X NDR), 31.5 GB/s", here.output)
        self.assertIn("under one switch, at most 31.5 GB/s", here.output)  # the card's link is what holds it up
        self.assertNotIn("ACS", here.output)
        self.assertNotIn("slow", here.output)

    def test_access_control(self):
        here = self.machine()
        here.bridge(f"{SWITCH}/0000:3c:00.0", control=0x1D)
        here.bridge(f"{SWITCH}/0000:3c:01.0")
        here.gpu(f"{SWITCH}/0000:3c:00.0/0000:3d:00.0")
        here.card("mlx5_0", f"{SWITCH}/0000:3c:01.0/0000:3e:00.0")
        self.assertEqual(here.report(), 0, here.output)
        self.assertIn("setpci -s 0000:3c:00.0 ECAP_ACS+6.w=0", here.output)
        self.assertIn("unknown  whether bridge 0000:3c:01.0", here.output)

    def test_apart(self):
        here = self.machine(driver=CLOSED_DRIVER, modules="nvidia_peermem 16384 0 - Live 0x0\n")
        here.gpu("pci0000:3a/0000:3a:00.0/0000:3d:00.0", iommu="DMA-FQ")
        here.card("mlx5_0", "pci0000:80/0000:80:00.0/0000:81:00.0")
        here.card("mlx5_1", "pci0000:3a/0000:3a:01.0/0000:3e:00.0")
        here.card("mlx5_2", "pci0000:3a/0000:3a:00.0/0000:3f:00.0")
        self.assertEqual(here.report(), 0, here.output)
        self.assertIn("mlx5_0 (0000:81:00.0): at different root complexes", here.output)
        self.assertIn("mlx5_1 (0000:3e:00.0): at one root complex", here.output)
        self.assertIn("mlx5_2 (0000:3f:00.0): behind one root port", here.output)
        self.assertIn("nvidia-peermem is loaded", here.output)
        self.assertIn("boot with iommu=pt", here.output)
        self.assertNotIn("ACS", here.output)  # it matters below a switch

    def test_odd_machines(self):
        # A folder with the name of a root complex above all, a file that cannot be read, a card in software, half a link.
        here = Machine(self.folder.name + "/pcie/pci0:host")
        here.gpu("pci0000:3a/0000:3a:00.0/0000:3d:00.0", lanes="8")
        (here.root / "sys/bus/pci/devices/0000:3d:00.0/iommu_group/type").mkdir(parents=True)
        entry = here.root / "sys/class/infiniband/rxe0"
        (entry / "ports/1").mkdir(parents=True)
        (entry / "ports/1/state").write_text("4: ACTIVE\n")
        (entry / "ports/1/rate").write_text("100 Gb/sec (4X EDR)\n")
        self.assertEqual(here.report(), 1, here.output)
        self.assertIn("has not all lanes", here.output)
        self.assertIn("rxe0 () is no PCI device", here.output)
        here.card("mlx5_0", "pci0000:3a/0000:3a:01.0/0000:3e:00.0")
        self.assertEqual(here.report(), 0, here.output)
        self.assertIn("at one root complex", here.output)

    def test_configuration_spaces(self):
        for control, text in ((0x04, "setpci"), (0x08, "setpci"), (0x40, None)):
            with tempfile.TemporaryDirectory() as folder:
                here = Machine(folder)
                here.bridge(f"{SWITCH}/0000:3c:00.0", control=control)
                here.device(f"{SWITCH}/0000:3c:01.0", **{"class": "0x060400", "vendor": "0x1000", "config": bytes(256)})
                here.gpu(f"{SWITCH}/0000:3c:00.0/0000:3d:00.0")
                here.card("mlx5_0", f"{SWITCH}/0000:3c:01.0/0000:3e:00.0")
                self.assertEqual(here.report(), 0)
                self.assertEqual(text is not None, "ACS" in here.output, here.output)

    def test_what_is_missing(self):
        here = self.machine(driver=CLOSED_DRIVER)
        here.gpu("pci0000:3a/0000:3a:00.0/0000:3d:00.0")
        here.card("mlx5_0", "pci0000:3a/0000:3a:00.0/0000:3f:00.0", state="1: DOWN")
        self.assertEqual(here.report(), 1)
        self.assertIn("missing  a way for network cards to GPU memory", here.output)
        self.assertIn("missing  a PCI card with a port that is active", here.output)
        self.assertIn("does not work here", here.output)

    def test_nothing(self):
        here = self.machine(driver=None)
        self.assertEqual(here.report(), 1)
        for text in ("NVIDIA's driver", "a GPU", "a network card for RDMA"):
            self.assertIn(f"missing  {text}", here.output)

    def test_wrong_folder(self):
        done = subprocess.run([INFO, "--gpudirect", "--root", "/nowhere"], capture_output=True, text=True, timeout=30)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nowhere", done.stderr)


unittest.main()
