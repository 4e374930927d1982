"""The configuration of Envoy: that of examples/compose, with processes of this machine in place of its services."""

ENDPOINT = "{{ endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }} }}"


def envoy_config(example, weirs, ingress, admin, service):
    """The text of the example with these ports: those of the weirs, and three of Envoy."""
    endpoints = ", ".join(ENDPOINT.format("127.0.0.1", port) for port in weirs)
    replaced = [
        (ENDPOINT.format("weir", 8081), endpoints, 1),
        ("address: 0.0.0.0, port_value: 10000 ", f"address: 127.0.0.1, port_value: {ingress} ", 1),
        ("port_value: 9901 ", f"port_value: {admin} ", 1),
        # The listener of the placeholder, and the cluster that leads to it.
        ("port_value: 10001 ", f"port_value: {service} ", 2),
    ]
    for text, replacement, times in replaced:
        if example.count(text) != times:
            raise SystemExit(f"examples/compose/envoy.yaml: `{text}` occurs {example.count(text)} times, not {times}")
        example = example.replace(text, replacement)
    return example
