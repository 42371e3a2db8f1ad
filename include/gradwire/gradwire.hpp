#pragma once

// The whole host API.
#include <gradwire/bucket_averager.hpp>
#include <gradwire/buffer.hpp>
#include <gradwire/codec.hpp>
#include <gradwire/communicator.hpp>
#include <gradwire/dtype.hpp>
#include <gradwire/env.hpp>
#include <gradwire/error.hpp>
#include <gradwire/exec.hpp>
#include <gradwire/frame.hpp>
#include <gradwire/gloo.hpp>
#include <gradwire/handshake.hpp>
#include <gradwire/inproc.hpp>
#include <gradwire/launch.hpp>
#include <gradwire/mpi.hpp>
#include <gradwire/reducer.hpp>
#include <gradwire/reduction.hpp>
#include <gradwire/spec.hpp>
#include <gradwire/stream.hpp>
#include <gradwire/transport.hpp>
#include <gradwire/version.hpp>
