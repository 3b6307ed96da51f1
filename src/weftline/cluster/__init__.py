"""The machines a plan is made for.

In: a TOML file with written units, the name of a preset, names of products, or this machine, measured. Out: an
immutable `Cluster` of devices and one-way links, checked by `check_cluster`, with a canonical TOML form that reads back
as the same cluster.
Simplified: a device is one compute rate per number format and one memory; a link is a latency and a bandwidth.
"""

from weftline.cluster.catalogue import Accelerator, accelerators, find_accelerator
from weftline.cluster.catalogue_links import LinkOption, LinkScope, link_names, read_link_option
from weftline.cluster.catalogue_machines import DeviceSet, NamedDevice, cluster_from_options, devices_from_options
from weftline.cluster.catalogue_options import DeviceOption, read_device_option
from weftline.cluster.detect import detect
from weftline.cluster.installed import InstalledDevice, installed_devices
from weftline.cluster.model import (
    Cluster,
    Device,
    Limits,
    Link,
    OpDevice,
    Rate,
    preset_descriptions,
    preset_names,
    preset_text,
)
from weftline.cluster.rules import check_cluster, warnings
from weftline.cluster.toml import toml_document

__all__ = [
    "Accelerator",
    "Cluster",
    "Device",
    "DeviceOption",
    "DeviceSet",
    "InstalledDevice",
    "Limits",
    "Link",
    "LinkOption",
    "LinkScope",
    "NamedDevice",
    "OpDevice",
    "Rate",
    "accelerators",
    "check_cluster",
    "cluster_from_options",
    "detect",
    "devices_from_options",
    "find_accelerator",
    "installed_devices",
    "link_names",
    "preset_descriptions",
    "preset_names",
    "preset_text",
    "read_device_option",
    "read_link_option",
    "toml_document",
    "warnings",
]
