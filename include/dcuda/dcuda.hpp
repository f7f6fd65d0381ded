// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// dCUDA: thread blocks as ranks that put into each other's memory and notify each other from inside a running kernel.
/// Include this in a .cu file. Host-only files may include dcuda/host.hpp alone.
#pragma once

#include "dcuda/device.hpp"
#include "dcuda/host.hpp"
