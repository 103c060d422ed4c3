"""Actor systems over the network: transports, authentication, associations and death watch."""
