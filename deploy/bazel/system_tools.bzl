"""@system_tools: protoc and gRPC's C++ plugin as Bazel sees them, so that a new version rebuilds."""

_TOOLS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

def _impl(repository_ctx):
    for tool, package in _TOOLS.items():
        path = repository_ctx.which(tool)
        if not path:
            fail("%s is not on the PATH; Debian's package is %s (deploy/test.sh installs it)" % (tool, package))
        repository_ctx.symlink(path, tool)
    repository_ctx.file("BUILD", "exports_files(%r)\n" % _TOOLS.keys())

system_tools = repository_rule(
    implementation = _impl,
    environ = ["PATH"],
    local = True,
)
